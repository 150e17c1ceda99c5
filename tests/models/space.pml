/* SPDX-License-Identifier: LGPL-2.1-or-later
 *
 * Reservation and the wait for space: pool/space.c (space_reserve, space_wait, space_publish_tail),
 * pool/append.c (find_place, note_in_entry, note_fence, claims_destager), pool/lanelock.c, pool/write.c
 * (write_to_lane, settle_by_fence), daemon/domain/worker.c (sleep_on), daemon/destage/run.c and step.c.
 *
 * Modelled: two writers, each with a file of its own, in units of 64 bytes. A write reserves, is made, and is
 * appended, with a PAD where it would wrap; UNLINKs of names that stay may follow, and a FENCE. A worker that
 * destages and, with SLEEPS, sleeps on `asleep`. In `dies` and `deaths` a writer or (`dies`) the daemon dies once,
 * at any step; inside the lane's lock only in `deaths`. Time passes only when nobody can move: a time-out that is needed is
 * seen, and who may need it is stated there. Without SLEEPS a step comes at any time, and who waits for room
 * looks whenever there is some.
 * Left out: payloads, the medium, the files' locks, TOUCH, failed calls, a destager whose syncs fail, store
 * buffers (each store that is followed by a look is seq_cst, or has lane_unlock's exchange behind it), a
 * process that comes after the death (its recount is slots.pml's strike_note; of a file whose owner died
 * between a FENCE's head and its note the next one writes a second FENCE, which in a lane that is full to
 * the last line has to wait for a step).
 *
 * Properties: a reserved append, and each live file's UNLINK and FENCE, find their room, the FENCE also after
 * UNLINKs again and again by both (an append may then be one for settle_by_fence), and whatever is trimmed
 * between the look at a file and its record; nothing that a power cut needs is overwritten; no
 * sleep over a record that wakes, nor over a trim; while the daemon lives each writer gets on by room, and by
 * bypass when it is gone.
 *
 * Check: wake -DSLEEPS -DRING=8 -DWRITES=1 -DUNLINKS=0 -DDEATHS=0
 * Check: dies -DSLEEPS -DRING=8 -DWRITES=1 -DUNLINKS=0 -DDEATHS=1
 * Check: room -DRING=8 -DSTART=7 -DWRITES=2 -DUNLINKS=0 -DDEATHS=0
 * Check: fences -DRING=6 -DSTART=3 -DWRITES=1 -DUNLINKS=1 -DDEATHS=0
 * Check: unlinks -DRING=10 -DWRITES=1 -DUNLINKS=6 -DDEATHS=0
 * Check: both -DRING=6 -DWRITES=1 -DUNLINKS=3 -DBOTH -DDEATHS=0
 * Check: deaths -DRING=8 -DWRITES=1 -DUNLINKS=1 -DDEATHS=1
 * Rule: NO_CLAIM wake an appender looks at asleep
 * Rule: CLAIM_FIRST wake after it has published its record
 * Rule: LOOK_BEFORE_ASLEEP wake the worker stores asleep, then looks at head
 * Rule: NO_TICK dies the worker's tick stands in for an appender that died before it woke it
 * Rule: NO_BYPASS dies the daemon gone: bypass
 * Rule: SEQ_LATE wake trim_seq is read before the reservation is tried
 * Rule: WAITERS_FIRST wake the worker raises trim_seq, then looks at the waiters
 * Rule: NO_RAISE wake a waiter is counted before it sleeps
 * Rule: SPACE_FIRST unlinks the tail is durable before its space is given out
 * Rule: RESERVE_ONCE room a reservation is twice the record: a PAD may be needed
 * Rule: NO_RESERVATION room the room is taken before the call, not at the append
 * Rule: NO_FILE_RESERVE fences each live file keeps 128 bytes free
 * Rule: UNLINK_TAKES_ALL unlinks an UNLINK leaves each live file its FENCE
 * Rule: GONE_UNLINKS both an UNLINK of a file that was trimmed takes no line of another's
 * Rule: GONE_FENCES both nor does its FENCE
 * Rule: GONE_FAILS both which is not needed, so that it may find no room
 * Rule: NO_RECOUNT deaths the notes are counted anew before a writer is told that there is no room
 * Rule: NO_TAKEOVER deaths a dead owner's lane lock is taken over
 */
#ifndef START
#define START 0
#endif
#define RECORD 2 /* header and a line of payload */
#ifdef NO_FILE_RESERVE
#define KEPT 0
#else
#define KEPT 2 /* SPACE_FILE_RESERVE */
#endif
#ifdef RESERVE_ONCE
#define FOR_WRITE (RECORD + KEPT)
#else
#define FOR_WRITE (2 * RECORD + KEPT) /* space_for */
#endif
#ifdef NO_RESERVATION
#define NOTED 0
#else
#define NOTED FOR_WRITE
#endif
#if DEATHS > 0 && !defined(SLEEPS)
#define LOCKED /* anybody may die inside */
#else
#define LOCKED atomic
#endif
#define WRITE  0
#define UNLINK 1
#define FENCE  2
#define WORKER 2
#define MANY   6 /* waits of one write, or time-outs of one wait */

byte head = START, tail = START, durable_tail = START; /* tail: as published */
byte last[2] = START, fence[2] = START; /* of the files */
byte note[2], reserved, live_files;
byte lane_lock; /* 1 + owner */
byte trim_seq, space_waiters;
byte asleep, mode; /* the worker's */
bool sleeping; /* it is, in futex_wait */
bool aged; /* the records are of age */
bool recent; /* a step was a moment ago: WAITER_NS */
bool waiting[2], late[2]; /* in futex_wait on trim_seq; it timed out */
byte seq[2], full_seq[2]; /* trim_seq as the waiter has it, and when it found no room */
byte outs[2];
bool dead[3], ended[2], armed = (DEATHS > 0);

#define MAX(a, b) ((a) > (b) -> (a) : (b))
#define LIVE(f)	  (last[f] > MAX(tail, fence[f]))
#define USED	  (head - tail)
#define FITS	  (USED + reserved + KEPT * live_files + FOR_WRITE <= RING)
#define NOTES	  ((dead[0] -> 0 : note[0]) + (dead[1] -> 0 : note[1])) /* of the living */
#define TRULY	  (USED + NOTES + KEPT * (LIVE(0) + LIVE(1)) + FOR_WRITE <= RING)
#define PRESSED	  (USED >= RING / 4 || (space_waiters != 0 && USED != 0 && USED >= RING / 8))
#define DIED	  (dead[0] || dead[1])

inline recount()
{
	note[0] = (dead[0] -> 0 : note[0]);
	note[1] = (dead[1] -> 0 : note[1]);
	reserved = note[0] + note[1];
	live_files = LIVE(0) + LIVE(1)
}

inline lock_lane(who)
{
	atomic {
#ifdef NO_TAKEOVER
		lane_lock == 0 ->
#else
		lane_lock == 0 || dead[lane_lock - 1] ->
#endif
		if
		:: lane_lock != 0 -> recount()
		:: else
		fi;
		lane_lock = who + 1
	}
}

inline wake_worker()
{
	if
	:: asleep != 0 ->
		atomic { was = asleep; asleep = 0 } /* xchg */
		if
		:: was != 0 -> sleeping = false
		:: else
		fi;
		was = 0
	:: else
	fi
}

inline claim_worker(at)
{
	if
	:: asleep == 0 || (asleep == 2 && at - tail <= RING / 4)
	:: else -> wake_worker()
	fi
}

/* append_record. no_room: APPEND_FULL */
inline append(type, need)
{
#ifdef CLAIM_FIRST
	if
	:: asleep != 0 -> wake_worker()
	:: else
	fi;
#endif
	LOCKED {
		lock_lane(me);
		if
		:: type == WRITE ->
			note[me] = note[me] - NOTED;
			reserved = reserved - NOTED
		:: else
		fi;
		atomic {
			/* find_place */
			was = LIVE(me);
			end = head + (need > RING - head % RING -> RING - head % RING : 0) + need;
			kept = reserved + KEPT * live_files;
			if
#ifdef GONE_FENCES
			:: type == FENCE -> kept = 0
#else
			:: type == FENCE -> kept = (was -> 0 : kept)
#endif
#ifdef UNLINK_TAKES_ALL
			:: type == UNLINK -> kept = 0
#else
#ifdef GONE_UNLINKS
			:: type == UNLINK -> kept = live_files
#else
			:: type == UNLINK -> kept = (was -> live_files : kept + KEPT)
#endif
#endif
			:: type == WRITE -> kept = kept + (was -> 0 : KEPT)
			fi;
			no_room = (end - tail + kept > RING);
			kept = 0
		}
		if
		:: !no_room ->
			assert(end - durable_tail <= RING); /* store_record: not over what a power cut needs */
			if
			:: type != FENCE ->
				live_files = live_files + 1 - was;
				last[me] = end
			:: else
			fi;
			head = end;
			if
			:: type == FENCE ->
				fence[me] = end - need;
				live_files = live_files - (was && !LIVE(me) && live_files > 0)
			:: else
			fi
		:: else
		fi;
		atomic { lane_lock = 0; was = 0 }
	}
#if defined(SLEEPS) && !defined(NO_CLAIM) && !defined(CLAIM_FIRST)
	if
	:: !no_room -> claim_worker(end)
	:: else
	fi;
#endif
	end = 0
}

/* RULE F, after the file was synced */
inline fence_file()
{
	if
	:: LIVE(me) ->
		append(FENCE, 1);
#ifdef GONE_FAILS
		assert(!no_room)
#else
		assert(!no_room || !LIVE(me))
#endif
	:: else
	fi
}

proctype writer(byte me)
{
	byte writes, unlinks, waits, was, end, kept;
	bool no_room, fits;

	{
		do
		:: writes < WRITES ->
#if defined(SLEEPS) && !defined(SEQ_LATE)
			seq[me] = trim_seq;
#endif
			/* space_reserve */
			LOCKED {
				lock_lane(me);
				fits = FITS;
#ifndef NO_RECOUNT
				if
				:: !fits -> atomic { recount(); fits = FITS }
				:: else
				fi;
#endif
				if
				:: fits ->
					note[me] = note[me] + NOTED;
					reserved = reserved + NOTED
				:: else -> full_seq[me] = trim_seq
				fi;
				lane_lock = 0
			}
			if
			:: fits ->
				/* the real call, then its record */
				append(WRITE, RECORD);
				if
				:: no_room ->
					assert(UNLINKS > 0);
					fence_file()
				:: else
				fi;
				atomic { writes++; waits = 0; fits = false }
			:: else ->
#ifdef SEQ_LATE
				seq[me] = trim_seq;
#endif
				/* space_wait */
				waits++;
				assert(waits < MANY);
#ifndef SLEEPS
				TRULY
#else
#ifndef NO_RAISE
				space_waiters++;
#endif
				do
				:: trim_seq != seq[me] -> break
#ifndef NO_BYPASS
				:: trim_seq == seq[me] && late[me] && dead[WORKER] -> writes = WRITES; break
				:: trim_seq == seq[me] && !(late[me] && dead[WORKER]) ->
#else
				:: else ->
#endif
					wake_worker();
					atomic { waiting[me] = (trim_seq == seq[me]) }
					!waiting[me]
				od;
#ifndef NO_RAISE
				space_waiters--;
#endif
				atomic { late[me] = false; outs[me] = 0; seq[me] = 0; full_seq[me] = 0 }
#endif
			fi
#ifdef BOTH
		:: unlinks < UNLINKS && LIVE(me) ->
#else
		:: me == 1 && unlinks < UNLINKS && LIVE(me) ->
#endif
			append(UNLINK, 1);
			unlinks++;
			if
			:: no_room ->
				/* one has its line, of a file that was not trimmed meanwhile */
				assert(UNLINKS > 1 || !LIVE(me));
				break
			:: else
			fi
		:: writes == WRITES -> break
		od;
#ifndef SLEEPS
		if
		:: fence_file() /* truncated, or into bypass */
		:: true
		fi
#endif
	} unless { dead[me] };
	ended[me] = true
}

proctype worker()
{
	byte h, was;

	{
end:		do
#ifdef SLEEPS
		:: true ->
			/* destage_run */
			if
			:: PRESSED || (space_waiters != 0 && !recent) || (USED != 0 && aged) ->
#else
		:: USED != 0 ->
#endif
				h = head;
				recent = true;
#ifndef SPACE_FIRST
				durable_tail = h;
#endif
				LOCKED {
					lock_lane(WORKER);
					tail = h;
					live_files = LIVE(0) + LIVE(1);
					lane_lock = 0
				}
				h = 0;
#ifdef SPACE_FIRST
				durable_tail = tail
#endif
#ifdef SLEEPS
#ifdef WAITERS_FIRST
				was = space_waiters;
				trim_seq++;
#else
				trim_seq++;
				was = space_waiters;
#endif
				if
				:: was != 0 -> atomic { waiting[0] = false; waiting[1] = false }
				:: else
				fi
			:: else
			fi;
			atomic { was = 0; aged = false }
			/* destage_sleep, sleep_on */
			mode = (USED != 0 -> 2 : 1);
#ifdef LOOK_BEFORE_ASLEEP
			was = (mode == 1 -> USED != 0 : PRESSED);
			asleep = mode;
#else
			asleep = mode;
			was = (mode == 1 -> USED != 0 : PRESSED);
#endif
			if
			:: !was ->
				atomic { sleeping = (asleep == mode) }
end2:				!sleeping
			:: else
			fi;
			atomic { asleep = 0; was = 0 }
#endif
		od
	} unless { dead[WORKER] }
}

/* Time passes. */
active proctype clock()
{
	do
	:: atomic { timeout ->
		/* what may not need it */
		assert(!sleeping || mode != 1 || USED == 0 || DIED);
		assert(!sleeping || mode != 2 || USED <= RING / 4 || DIED);
		assert(!waiting[0] || (trim_seq == seq[0] && trim_seq == full_seq[0]) || dead[WORKER]);
		assert(!waiting[1] || (trim_seq == seq[1] && trim_seq == full_seq[1]) || dead[WORKER]);
		recent = false;
		armed = (DEATHS > 0 && !DIED && !dead[WORKER]);
		if
#ifdef SLEEPS
		:: waiting[0] && (outs[0] < 2 || !sleeping) ->
			waiting[0] = false; late[0] = true; outs[0]++; assert(outs[0] < MANY)
		:: waiting[1] && (outs[1] < 2 || !sleeping) ->
			waiting[1] = false; late[1] = true; outs[1]++; assert(outs[1] < MANY)
		:: sleeping && mode == 2 -> aged = true; sleeping = false
#ifndef NO_TICK
		:: sleeping && mode == 1 && DIED && (USED != 0 || asleep == 0) -> sleeping = false
#endif
#endif
		:: else ->
			armed = false;
			assert(ended[0] && ended[1]);
			assert(USED == 0 || dead[WORKER]);
			break
		fi
	   }
	od
}

/* kill -9, at any time */
active proctype killer()
{
end:	do
	:: atomic { armed && !ended[1] -> armed = false; dead[1] = true; waiting[1] = false }
#ifdef SLEEPS
	:: atomic { armed -> armed = false; dead[WORKER] = true; sleeping = false }
#endif
	:: armed -> armed = false /* not now */
	od
}

init {
	atomic { run writer(0); run writer(1); run worker() }
}
