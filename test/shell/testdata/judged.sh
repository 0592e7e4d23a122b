# Two at a time, again and again. flock(1) judges: the file of each slot number is locked by whoever has that number. A
# child of a shell that was killed may keep it locked for a moment more, while it is dying itself; a shell that is alive may not.
set -u
while :; do
  id=$(golock acquire --name judged --max 2 --for $$ 8>&-) || exit
  slot=$(golock ls --json judged | tr -d ' \n' | sed "s/.*\"id\":\"$id\",\"state\":\"holding\",\"slots\":\[\([0-9]*\)\].*/\1/")
  exec 8>"judge.$slot"
  if ! flock -n 8; then
    read -r owner <"owner.$slot" && case $(cut -d' ' -f3 "/proc/$owner/stat" 2>&1) in
    R | S | D) echo "slot $slot is taken by $$ and by $owner" >>violations ;;
    esac
    flock 8
  fi
  echo $$ >"owner.$slot"
  echo in
  sleep 0.0"$(($$ % 10))" 8>&-
  : >"owner.$slot"
  exec 8>&-
  golock release "$id" || echo "lost $id" >>violations
done
