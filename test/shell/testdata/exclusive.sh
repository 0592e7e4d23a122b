# One at a time: read, add, write. What is protected is in the file $1.
set -eu
i=0
while [ $i -lt 10 ]; do
  id=$(golock acquire --name counter --for $$)
  n=$(cat "$1")
  echo $((n + 1)) >"$1"
  golock release "$id"
  i=$((i + 1))
done
