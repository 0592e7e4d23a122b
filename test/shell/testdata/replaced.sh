# The newest wins: the older one's slot is taken back, and asking tells it so.
set -eu
a=$(golock acquire --name r --replace running --for $$)
golock held --id "$a"
b=$(golock acquire --name r --replace running --for $$ 2>err)
grep -q '^golock: replaced pid' err
golock held --id "$b"
golock held --id "$a" && exit 1 || [ $? -eq 79 ]
golock release "$a" 2>/dev/null && exit 1 || [ $? -eq 79 ]
golock held --id "$b"
golock release "$b"
[ -z "$(golock ls r 2>/dev/null)" ]
