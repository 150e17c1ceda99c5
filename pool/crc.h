/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stddef.h>
#include <stdint.h>

/*
 * CRC32C (Castagnoli, reflected 0x82f63b78, RFC 3720 appendix B.4), continued: start with 0, pass
 * the former result on. Picks SSE4.2 by CPUID once; a table elsewhere. Thread-safe, allocates
 * nothing. Our own since no Debian package has a static library of it and the shim may need libc
 * alone; tests compare it with ISA-L's.
 */
uint32_t crc32c(uint32_t crc, const void *data, size_t n);
