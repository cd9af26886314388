# Until the sandbox has no room for more, and again whenever one ends.
bomb()
{
    bomb 2> /dev/null & bomb 2> /dev/null &
    sleep 9999
}
( bomb & ) 2> /dev/null
: > "$HIDE_READY"
