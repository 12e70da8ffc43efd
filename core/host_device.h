// PENSTOCK_HD marks a function that kernels call on the host and on the device alike: nothing for a plain C++
// compiler, `__host__ __device__` under nvcc. It is apart so that such headers need no CUDA header.
#pragma once

#if defined(__CUDACC__)
#define PENSTOCK_HD __host__ __device__
#else
#define PENSTOCK_HD
#endif
