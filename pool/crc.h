/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * CRC32C (Castagnoli, reflected 0x82f63b78, RFC 3720 appendix B.4), continued: start with 0, pass
 * the former result on. Picks by CPUID once: carry-less multiplication, the
 * crc32 instruction, or a table. Thread-safe, allocates
 * nothing. Our own since no Debian package has a static library of it and the shim may need libc
 * alone; tests compare it with ISA-L's.
 */
uint32_t crc32c(uint32_t crc, const void *data, size_t n);

/* For tests: from now on the i-th way that this processor has, slowest first. False: none such. */
bool crc32c_use(unsigned i);
