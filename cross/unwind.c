/* What the standard library asks of an unwinder when it prints the backtrace of a panic: there is none.
 *
 * A release is built without the tables an unwinder reads (panic = "abort"), so a real one would find nothing either.
 * On ARM the last two are named by the ARM ABI in the tables of C objects, and are never called. */

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
/* What _Unwind_GetIP is made of here. */
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
