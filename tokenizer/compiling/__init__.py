# SPDX-License-Identifier: Apache-2.0
"""How a kernel becomes machine code: a wheel brings it, or numba compiles it, once for a machine, when it is called.

    kernel(arrays, numbers) -> signature -> row -> library: the wheel's, by ctypes          }
                                                -> machine_code: kept on disk, LLVM links it  } -> a function in C
                                                -> numba_compiler + entries: compiled, kept   }

In: functions in numba's dialect of Python, marked with the decorators of `kernel`. Out: functions that are compiled or
loaded when they are called. What kernels may use besides numba is here too: `references`, `vectors`, and intrinsics in
`kernel`. Knows no tokenizer; `pipeline` compiles its kernels in the same way.
"""
