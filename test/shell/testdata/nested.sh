# Inside a run the script asks without an ID, also two levels deep.
set -eu
golock run --name outer -- sh -ec '
  golock held
  golock run --name inner -- golock held
  id=$(golock acquire --name of-its-own --for $$)
  golock held
  golock release "$id"
  golock release "$GOLOCK_ID" 2>err && exit 1 || [ $? -eq 64 ]
  golock held'
