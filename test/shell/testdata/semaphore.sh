# At most three, the fourth is turned away; slots are given again.
set -eu
ids=
for i in 1 2 3; do
  ids="$ids $(golock acquire --name build --max 3 --for $$)"
done
golock acquire --name build --max 3 -n --for $$ 2>err && exit 1 || [ $? -eq 75 ]
grep -q '^golock: "build" is busy: held by pid' err
[ "$(golock ls build | grep -c holding)" -eq 3 ]
set -- $ids
golock release "$2"
again=$(golock acquire --name build --max 3 -n --for $$)
golock ls --json build | tr -d ' \n' | grep -q "\"id\":\"$again\",\"state\":\"holding\",\"slots\":\[1\]"
for id in "$1" "$3" "$again"; do golock release "$id"; done
[ -z "$(golock ls build 2>/dev/null)" ]
