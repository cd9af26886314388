# A program whose file, and whose directory, are gone.
mkdir -p /tmp/deleted
cd /tmp/deleted || exit 1
cp /bin/sleep x
./x 9999 &
sleep 0.1
rm -r /tmp/deleted
: > "$HIDE_READY"
