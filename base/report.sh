# Sourced by build and customize: what the person who waits gets to see.
#
# Descriptor 8 is his terminal; 1 and 2 of the tools go to a log, of which he
# sees the end only if something fails.  STEP is a file with the current step
# and when it began, because one begins in build and ends in customize.


# step NAME: the last step, if any, is done; NAME begins.  Without NAME: done.

step() {
    now=$(date +%s)

    if [ -s "$STEP" ]; then
        read -r began name < "$STEP"
        echo "$((now - began)) s" >&8
        : > "$STEP"
    fi

    if [ $# != 0 ]; then
        printf 'base: %s ... ' "$1" >&8
        echo "$now $1" > "$STEP"
    fi
}
