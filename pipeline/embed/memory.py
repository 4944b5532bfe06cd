"""Give memory that is not in use back to the system."""

import ctypes


def return_free_memory() -> None:
    """Return the memory that glibc's allocator holds free. With another C library, do nothing.

    The allocator keeps freed memory for later, but arrays of ever new sizes do not fit into its gaps, so a process that
    computes in batches of many sizes grows although it uses no more. A call takes milliseconds.
    """
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):  # no glibc; TypeError: Windows cannot open the program itself
        return
    trim(0)
