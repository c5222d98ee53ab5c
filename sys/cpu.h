// The machine's processors.
#pragma once

// Physical cores that this process may run on (hyper-threads of one core count once), within its CPU quota. At least 1.
int kin_cpu_n_cores(void);

// Threads that this process can run at the same time: hyper-threads count each, quotas do not. At least 1.
int kin_cpu_n_threads(void);
