// The machine's processors.
#pragma once

// Returns the physical cores that this process may use (hyper-threads of a core count once), within its CPU quota. At least 1.
int kin_cpu_n_cores(void);

// Returns the threads that this process can run at once: hyper-threads count separately, quotas are ignored. At least 1.
int kin_cpu_n_threads(void);
