# SPDX-License-Identifier: Apache-2.0
"""How a kernel becomes machine code: when it is first called, once for a machine, and later without numba.

In: functions in numba's dialect of Python, marked with the decorators of `kernel`. Out: functions that are compiled or
loaded when they are called. What kernels may use besides numba is here too: `references`, `vectors`, and intrinsics in
`kernel`. Knows no tokenizer; `pipeline` compiles its kernels in the same way.
"""
