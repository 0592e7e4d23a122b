# Cleaning up in a trap, whatever way the script ends; the exit code is the script's.
set -eu
id=$(golock acquire --name trap -n --for $$) || exit
trap 'golock release "$id"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
golock held --id "$id"
echo "in $id"
case $1 in
ends) ;;
exits) exit 7 ;;
fails) false ;;
waits) read -r line ;;
released) golock release "$id"; trap - EXIT; golock held --id "$id" ;;
esac
