/* A stub of the unwinder functions that the standard library calls to print the backtrace of a panic.
 *
  * A release is built without unwind tables (panic = "abort"), so a real unwinder would find nothing either. On ARM, the
  * tables of C objects refer to the last two functions, which are never called. */

int _Unwind_Backtrace(void *step, void *argument) {
    (void)step;
    (void)argument;
    return 5; /* the end of the stack */
}

unsigned long _Unwind_GetIP(void *frame) {
    (void)frame;
    return 0;
}

#ifdef __arm__
/* Implements _Unwind_GetIP on ARM. */
int _Unwind_VRS_Get(void *frame, int kind, unsigned number, int as, void *value) {
    (void)frame;
    (void)kind;
    (void)number;
    (void)as;
    (void)value;
    return 2; /* failed */
}

void __aeabi_unwind_cpp_pr0(void) {}
void __aeabi_unwind_cpp_pr1(void) {}
#endif
