# Never stops writing, with several at both streams.
yes &
yes >&2 &
cat /dev/zero &
: > "$HIDE_READY"
