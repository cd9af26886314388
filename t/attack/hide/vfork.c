/* A parent that sleeps in vfork(), as nothing but a kill can end. */

#include "hide.h"


int
main(int argc, char **argv)
{
    background(argc);

    if (vfork() == 0) {
        setsid();
        ready();
        forever();
    }

    forever();
}
