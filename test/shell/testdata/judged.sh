# Two at a time, again and again. flock(1) judges: the file of each slot number is locked by whoever has that number.
# Only the shell itself has it open, so that it is free when the shell is dead.
set -u
while :; do
  id=$(golock acquire --name judged --max 2 --for $$ 8>&-) || exit
  slot=$(golock ls --json judged | tr -d ' \n' | sed "s/.*\"id\":\"$id\",\"state\":\"holding\",\"slots\":\[\([0-9]*\)\].*/\1/")
  exec 8>"judge.$slot"
  flock -w 0.05 8 || echo "slot $slot is taken twice" >>violations
  echo in >>visits
  sleep 0.0"$(($$ % 10))" 8>&-
  exec 8>&-
  golock release "$id" || echo "lost $id" >>violations
done
