/* set-clock SECONDS: sets the clock to this many seconds after 1970; +SECONDS and -SECONDS step it. Works after 2038
   on 32 bits, where busybox's date does not. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int main(int argc, char **argv) {
    struct timespec now;
    if (argc != 2 || clock_gettime(CLOCK_REALTIME, &now) != 0) return 2;
    long long seconds = atoll(argv[1]);
    int steps = argv[1][0] == '+' || argv[1][0] == '-';
    now.tv_sec = steps ? now.tv_sec + seconds : seconds;
    if (clock_settime(CLOCK_REALTIME, &now) == 0) return 0;
    perror("set-clock");
    return 1;
}
