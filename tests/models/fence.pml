/* SPDX-License-Identifier: LGPL-2.1-or-later
 *
 * RULE F against heal: pool/fence.c (file_fenced_locked, file_fence, heal_and_sync, file_put_right),
 * pool/heal.c (heal_around), pool/pages.c, pool/write.c (write_recorded), pool/file.c (file_lock,
 * file_real_sync, file_sync), daemon/destage/step.c (file_durable, file_heal, file_failed, file_mended,
 * step_files).
 *
 * Modelled: one place of one file; what stands there is a number that grows with each call. Two clients
 * make calls (write, fenced call, read and fsync), may open the file anew and may die inside; the worker
 * heals, syncs and trims. The disk fails once or twice at any time: the page is clean from then on, was not
 * written, and may be dropped; on a file system like ext4 the extent of a new block stays unwritten, so that
 * later writes are lost, too, until the page was dropped. An open description hears of an error once; one
 * that was opened since, only if nobody had heard of it. With SHARED the clients have one description between
 * them, as after a fork: what one of them has heard the other never hears, and notes its open_head apart.
 * With TOLD somebody without the library syncs, too, and is told. LOST begins where the worker's sync of a
 * first record has failed.
 * Left out: several places (heal's order by intervals: tests/crash), the medium (tests/crash), bypass
 * (token.pml), a file preallocated on purpose (its pages are dropped for nothing), the daemon's restart.
 *
 * Properties: what was acknowledged is what a power cut at any step would leave, or newer: no record is
 * dropped whose bytes are not durable, and no older record is replayed over a newer call; heal writes
 * nothing older over what a reader may have seen; while bytes are known to be lost the file is degraded.
 *
 * Check: safety -DCALLS=2 -DOTHERS=1 -DFAULTS=1 -DTOLD
 * Check: settled -DCALLS=2 -DOTHERS=1 -DFAULTS=1 -DTOLD -DSETTLE
 * Check: shared -DCALLS=2 -DOTHERS=1 -DFAULTS=1 -DSHARED -DLOST
 * Check: told -DCALLS=2 -DOTHERS=1 -DFAULTS=2 -DTOLD
 * Deep: all -DCALLS=2 -DOTHERS=2 -DFAULTS=1 -DTOLD
 * Rule: NO_FENCE safety everything older is fenced off before the call
 * Rule: FENCE_FIRST safety the FENCE comes after the sync
 * Rule: NO_SECOND_SYNC safety the call is synced before it is acknowledged
 * Rule: NO_OP safety op, and the note of a write, tell of a call whose owner died
 * Rule: NO_HEAL safety after a failed sync the bytes are written again
 * Rule: HEAL_OVER_CUT safety heal leaves a dead owner's newer bytes alone
 * Rule: OPENED_UNLOCKED safety what a description proves is counted from its first lock
 * Rule: REOPENED_UNLOCKED told the worker's, too, which may come from a second failure
 * Rule: CLEARED_MOVED shared degraded is cleared only if it has not moved since the heal began
 * Rule: NO_MARK shared nor cleared and raised again where the lock was let go of in between
 * Rule: PAGES_KEPT safety after a heal, pages of unwritten extents are dropped and healed anew
 * Rule: PAGES_KEPT_ALONE safety those of a fenced call that failed, too
 * Rule: KEEP_UNSEEN settled where newer bytes must be kept such a sync counts as failed
 * Rule: DROPPED_ONCE told and once more when the sync after that fails
 * Rule: TAIL_FIRST safety the tail moves after the sync
 * Rule: HEAD_LATE safety and over what was appended before it
 */
#define WORKER 2
#define MARK   100 /* DEGRADED_HEAL */

#ifdef LOST
#define WAS 1
#else
#define WAS 0
#endif
byte page = WAS, disk; /* in the page cache, and durable */
bool dirty;
bool unwritten; /* the extent is, after an error: zeros, whatever was written */
bool stuck; /* and the page does not know, so that its next writeback does not change that */
byte record = WAS, first = WAS; /* newest and oldest live record; 0: none */
byte head = 1 + WAS; /* above all records */
byte acked = WAS, next = 1 + WAS;
byte errors = WAS, reported = WAS; /* writeback errors of the inode so far, and those that somebody heard of */
byte heard[3]; /* by each open description */
byte opened[3] = 1; /* open_head; 0: noted at the first lock, when no write is under way */
bool op, cut; /* entry: op; write_length */
byte degraded = WAS;
bool known = WAS; /* somebody was told, and the bytes have not been written again */
byte lock; /* 1 + owner */
bool dead[2];

#define AFTER_CUT (record != 0 -> record : disk)
#define CHECK	  assert(AFTER_CUT >= acked)
#define MAX(a, b) ((a) > (b) -> (a) : (b))
#ifdef SHARED
#define HEARD(me) heard[me - (me == 1)] /* client 1 has that of 0 */
#else
#define HEARD(me) heard[me]
#endif

/* Without the books. */
inline bare_sync(me)
{
	atomic {
		if
		:: errors != HEARD(me) -> HEARD(me) = errors; reported = errors; failed = true;
			known = known || (record != 0 && !dirty && disk < record)
		:: else -> failed = false
		fi;
		if
		:: dirty && stuck -> dirty = false
		:: dirty && !stuck -> dirty = false; disk = page; unwritten = false
		:: else
		fi
	}
}

inline fsync(me)
{
	atomic {
		bare_sync(me);
		if
		:: failed -> degraded++; opened[me] = head
		:: else
		fi
	}
}

inline clear_degraded(was)
{
	atomic {
		if
#ifdef CLEARED_MOVED
		:: was != 0 ->
#else
		:: was != 0 && degraded == was ->
#endif
			degraded = 0;
			assert(!known)
		:: else
		fi
	}
}

/* over: a dead owner's bytes are given up */
inline heal(keep, over)
{
	atomic {
		if
		:: record != 0 && !keep ->
			assert(record >= page || degraded != 0 || over); /* else what readers saw stays */
			page = record; dirty = true; known = false
		:: else
		fi
	}
}

/* pages_drop: dirty pages are not dropped, so they are synced first */
inline drop(me)
{
	fsync(me);
	atomic {
		if
		:: !failed -> page = disk; stuck = false
		:: else
		fi
	}
}

/* file_fence: afterwards nothing of the file is live */
inline file_fence(forced, keep)
{
#ifdef FENCE_FIRST
	atomic { record = 0; CHECK }
#endif
#ifndef NO_HEAL
	if
	:: forced || degraded != 0 || first < opened[me] ->
		do
		:: tries < 2 ->
			seen = degraded;
			heal(keep, forced);
			fsync(me);
			if
#ifndef PAGES_KEPT
			:: !failed && !keep && unwritten && !dropped ->
				drop(me);
				if
				:: failed -> break
				:: else -> dropped = true
				fi
#ifdef KEEP_UNSEEN
			:: !failed && (keep || !unwritten || dropped) -> clear_degraded(seen); break
#else
			:: !failed && (!unwritten || dropped) -> clear_degraded(seen); break
			:: !failed && keep && unwritten -> atomic { degraded++; failed = true; break }
#endif
#else
			:: !failed -> clear_degraded(seen); break
#endif
			:: failed && keep -> break
#ifdef DROPPED_ONCE
			:: failed && !keep -> tries++
#else
			:: failed && !keep -> atomic { tries++; dropped = false }
#endif
			fi
		:: else -> break
		od;
		atomic { tries = 0; seen = 0; dropped = false }
	:: else -> fsync(me)
	fi;
#else
	fsync(me);
#endif
	atomic {
		if
		:: !failed ->
#ifndef NO_FENCE
			record = 0; first = 0;
#endif
			CHECK
		:: else
		fi
	}
}

/* file_lock, and file_put_right where a dead owner left something. failed: let go of again */
inline file_lock()
{
	atomic {
		lock == 0 || (lock <= 2 && dead[lock - 1]) ->
#ifndef NO_OP
		op = op || (lock != 0 && cut);
#endif
		lock = me + 1;
		failed = false;
		opened[me] = (opened[me] == 0 -> head : opened[me])
	}
	if
	:: op ->
		atomic {
#ifndef HEAL_OVER_CUT
			kept = cut && degraded == 0 && (record == 0 || first >= opened[me]);
#endif
			assert(!cut || kept || degraded != 0 || (record != 0 && first < opened[me]))
		}
		if
		:: record != 0 -> file_fence(!kept, kept)
		:: else ->
			fsync(me);
#if !defined(PAGES_KEPT) && !defined(PAGES_KEPT_ALONE)
			if
			:: !failed && unwritten -> drop(me)
			:: else
			fi
#endif
		fi;
		atomic {
			kept = false;
			if
			:: !failed -> op = false; cut = false
			:: else -> lock = 0
			fi
		}
	:: else
	fi
}

proctype client(byte me)
{
	byte mine, seen, calls, tries;
	bool failed, kept, dropped;

again:	calls++;
	file_lock();
	if
	:: failed -> goto over
	:: !failed ->
		/* a write: RULE L */
		cut = true;
		atomic { page = next; mine = next; next++; dirty = true; known = false }
		if
		:: atomic { dead[me] = true; goto died }
		:: atomic {
			record = mine; first = (first == 0 -> mine : first); head = mine + 1;
			acked = mine; cut = false
		   }
#ifdef SETTLE
		:: file_fence(false, true); /* no room for its record: settle_by_fence */
			atomic {
				if
				:: !failed -> acked = mine; CHECK
				:: else
				fi;
				cut = false
			}
#endif
		fi
	:: !failed ->
		/* a call that no record can stand for: RULE F */
#ifndef NO_OP
		op = true;
#endif
		if
		:: record != 0 -> file_fence(false, false)
#ifndef PAGES_KEPT
		:: record == 0 && degraded != 0 ->
			fsync(me);
			if
			:: !failed && unwritten -> drop(me)
			:: else
			fi
		:: record == 0 && degraded == 0
#else
		:: else
#endif
		fi;
		if
		:: failed -> op = false
		:: else ->
			atomic { page = next; mine = next; next++; dirty = true; known = false }
			if
			:: atomic { dead[me] = true; goto died }
			:: true
			fi;
#ifndef NO_SECOND_SYNC
			fsync(me);
#endif
			if
			:: !failed -> atomic { acked = mine; op = false; CHECK }
			:: else /* op stays */
			fi
		fi
	:: !failed ->
		/* read what is there, then fsync: nothing to sync, since all has its record */
		atomic {
			if
			:: !op && page > acked && degraded == 0 && errors == 0 ->
				acked = page; CHECK
			:: else
			fi
		}
	fi;
	lock = 0;
over:	atomic { mine = 0; failed = false; kept = false }
	if
	:: calls < (me == 0 -> CALLS : OTHERS) -> goto again
#ifndef SHARED
	:: calls < (me == 0 -> CALLS : OTHERS) -> /* opens it anew */
		atomic {
			heard[me] = reported;
#ifdef OPENED_UNLOCKED
			opened[me] = head;
#else
			opened[me] = 0;
#endif
			goto again
		}
#endif
	:: true
	fi;
died:	skip
}

inline mark_heal()
{
#ifdef NO_MARK
	was = degraded
#else
	atomic { degraded = (degraded != 0 -> MARK : 0); was = degraded }
#endif
}

proctype worker(byte me)
{
	byte h, seen, was, tries;
	bool failed, kept, heals, dropped;

	do
	:: atomic {
		record != 0 || degraded != 0 ->
		h = record;
		heals = degraded != 0 || opened[me] == 0 || first < opened[me]
	   }
#ifdef TAIL_FIRST
		atomic { record = (record <= h -> 0 : record); CHECK }
#endif
#ifndef NO_HEAL
		if
		:: heals ->
			file_lock();
			if
			:: failed -> goto fails
			:: else
			fi;
			mark_heal();
			heal(false, false);
			lock = 0
		:: else
		fi;
#endif
		bare_sync(me);
#ifndef PAGES_KEPT
		if
		:: !failed && heals && unwritten ->
			file_lock();
			if
			:: failed -> goto fails
			:: else
			fi;
			mark_heal();
			drop(me);
			if
			:: failed -> lock = 0; goto fails
			:: else
			fi;
			heal(false, false);
			lock = 0;
			bare_sync(me)
		:: else
		fi;
#endif
		if
		:: failed ->
fails:			degraded++;
			/* opened anew */
#ifdef REOPENED_UNLOCKED
			heard[me] = reported;
			opened[me] = head
#else
			atomic { heard[me] = reported; opened[me] = 0 }
#endif
		:: else ->
#ifdef HEAD_LATE
			h = record;
#endif
			/* file_mended */
			if
			:: was != 0 ->
				file_lock();
				if
				:: failed
				:: else -> clear_degraded(was); lock = 0
				fi
			:: else
			fi;
			atomic {
				if
				:: record <= h -> record = 0; first = 0
				:: else -> first = MAX(first, h + 1)
				fi;
				CHECK
			}
		fi;
		atomic { h = 0; seen = 0; was = 0; failed = false; heals = false }
	:: timeout -> break
	od
}

/* A writeback that fails, and memory pressure after it. */
active proctype disk_fault()
{
	byte faults;

	do
	:: faults < FAULTS ->
		if
		:: atomic { dirty -> dirty = false; errors++; faults++ }
		:: atomic { dirty && disk == 0 -> dirty = false; errors++; faults++; unwritten = true; stuck = true }
		:: break
		fi;
		if
		:: atomic { !dirty && page != disk -> page = disk; stuck = false }
#ifdef TOLD
		:: reported = errors /* somebody without the library syncs, and is told */
#endif
		:: true
		fi
	:: else -> break
	od
}

init {
	atomic {
		heard[WORKER] = WAS;
		opened[WORKER] = 1 - WAS; /* opened anew */
		run client(0); run client(1); run worker(WORKER)
	}
}
