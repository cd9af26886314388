# Holds both of the command's streams open, and writes when it is too late.
(
    trap '' PIPE HUP
    while :; do
        echo still here
        echo still here >&2
        sleep 0.01
    done
) &
: > "$HIDE_READY"
