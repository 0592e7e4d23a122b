# Waiting has its time.
set -eu
id=$(golock acquire --name t --for $$)
before=$(date +%s%N)
golock acquire --name t --wait 0.3 --for $$ 2>err && exit 1 || [ $? -eq 75 ]
after=$(date +%s%N)
[ $((after - before)) -ge 300000000 ]
grep -q 'is busy' err
golock release "$id"
id=$(golock acquire --name t --wait 0.3 --for $$)
golock release "$id"
