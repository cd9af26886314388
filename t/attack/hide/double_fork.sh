# Two generations end at once; the third has no parent but process 1.
( ( sleep 9999 & ) & )
sleep 0.05
: > "$HIDE_READY"
