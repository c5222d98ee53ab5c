// Reading past the page cache.
#pragma once

// Another descriptor of the open file `fd` whose reads go straight to the disk (they must be aligned to its blocks: 4096 does).
// -1 where the file system cannot do that. The caller closes it.
int kin_direct_open(int fd);
