/* The process that holds a pod's namespaces: exits on SIGTERM and SIGINT, and reaps orphaned processes. */
#include <signal.h>
#include <sys/wait.h>

int main(void) {
    sigset_t awaited;
    int received;
    sigemptyset(&awaited);
    sigaddset(&awaited, SIGINT);
    sigaddset(&awaited, SIGTERM);
    sigaddset(&awaited, SIGCHLD);
    sigprocmask(SIG_BLOCK, &awaited, 0);
    for (;;) {
        if (sigwait(&awaited, &received) != 0) return 1;
        if (received != SIGCHLD) return 0;
        while (waitpid(-1, 0, WNOHANG) > 0) {}
    }
}
