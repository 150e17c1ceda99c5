/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Gives a family's functions the names of calls.def. Included at the end of a family's file, which has
 * defined FAMILY_<FAMILY>; the other families' lines come to nothing. No include guard.
 *
 * The symbol is an assembler name, so that libc's own declaration of it stays out of the way. The other one,
 * local_SYMBOL, is for the library itself (family.h): no library before us in the link order gets between.
 */
#define EXPORT(symbol, function)                                                \
	extern __typeof__(function) export_##symbol __asm__(#symbol)            \
		__attribute__((alias(#function), visibility("default"), used)); \
	extern __typeof__(function) hidden_##symbol __asm__("local_" #symbol)   \
		__attribute__((alias(#function), visibility("hidden"), used));

#define NOT_HERE(symbol, function)

#ifdef FAMILY_OPEN
#define CALL_OPEN EXPORT
#else
#define CALL_OPEN NOT_HERE
#endif
#ifdef FAMILY_CLOSE
#define CALL_CLOSE EXPORT
#else
#define CALL_CLOSE NOT_HERE
#endif
#ifdef FAMILY_DUP
#define CALL_DUP EXPORT
#else
#define CALL_DUP NOT_HERE
#endif
#ifdef FAMILY_READ
#define CALL_READ EXPORT
#else
#define CALL_READ NOT_HERE
#endif
#ifdef FAMILY_WRITE
#define CALL_WRITE EXPORT
#else
#define CALL_WRITE NOT_HERE
#endif
#ifdef FAMILY_SYNC
#define CALL_SYNC EXPORT
#else
#define CALL_SYNC NOT_HERE
#endif
#ifdef FAMILY_SIZE
#define CALL_SIZE EXPORT
#else
#define CALL_SIZE NOT_HERE
#endif
#ifdef FAMILY_COPY
#define CALL_COPY EXPORT
#else
#define CALL_COPY NOT_HERE
#endif
#ifdef FAMILY_NAME
#define CALL_NAME EXPORT
#else
#define CALL_NAME NOT_HERE
#endif
#ifdef FAMILY_META
#define CALL_META EXPORT
#else
#define CALL_META NOT_HERE
#endif
#ifdef FAMILY_MAP
#define CALL_MAP EXPORT
#else
#define CALL_MAP NOT_HERE
#endif
#ifdef FAMILY_AIO
#define CALL_AIO EXPORT
#else
#define CALL_AIO NOT_HERE
#endif
#ifdef FAMILY_STREAM
#define CALL_STREAM EXPORT
#else
#define CALL_STREAM NOT_HERE
#endif
#ifdef FAMILY_PRINT
#define CALL_PRINT EXPORT
#else
#define CALL_PRINT NOT_HERE
#endif
#ifdef FAMILY_SPAWN
#define CALL_SPAWN EXPORT
#else
#define CALL_SPAWN NOT_HERE
#endif
#ifdef FAMILY_SYSCALL
#define CALL_SYSCALL EXPORT
#else
#define CALL_SYSCALL NOT_HERE
#endif
#ifdef FAMILY_IOCTL
#define CALL_IOCTL EXPORT
#else
#define CALL_IOCTL NOT_HERE
#endif
#ifdef FAMILY_FORK
#define CALL_FORK EXPORT
#else
#define CALL_FORK NOT_HERE
#endif

#include "client/preload/calls.def"
