# Takes and gives back locks with longer and longer names.
set -eu
name=
while [ ${#name} -lt "$NAMES" ]; do
  name=${name}n
  id=$(golock acquire --name "$name" --for $$)
  golock release "$id"
done
