/* SPDX-License-Identifier: LGPL-2.1-or-later
 *
 * Taking a slot against the end of a control file: pool/slot.c (slot_take, session_lock_exclusive),
 * client/preload/attach.c (publish, map_lane), attach_without_daemon.c (judge), daemon/domain/attach.c
 * (attach_new), end.c (shut, sessions_end), decide.c (shut, domain_decide), daemon/recover/offline.c
 * (offline_claim, offline_recover).
 *
 * Modelled: sessions that open the control file through the daemon or, without one, by its path, map the
 * lane, take a byte and append; a forked child that goes on with its parent's mapping; a daemon that makes
 * control files, ends them when nobody lives, and is killed once anywhere; a gate beside it. A control file
 * is an inode: the path may mean another one by now. Sessions may end at every step.
 * Left out: the generation (slots.pml), uid and domain checks, hold and quarantine, the 3 s of grace that a
 * new process has, the lane's records: recovery is a span of time in which nobody may append.
 *
 * Property: who appends does so in the lane's incarnation, and never while recovery, or the destaging of an
 * ended domain, has the lane.
 *
 * That the state is read after the byte is held is one safety more than needed: under the session lock it
 * may come before.
 *
 * Check: two -DSESSIONS=2 -DCHILDREN=0 -DNO_GATE
 * Check: child -DSESSIONS=1 -DCHILDREN=1
 * Rule: NO_SESSION_LOCK two a slot is taken under the session lock, shared
 * Rule: STATE_UNLOCKED two the state is read under the session lock
 * Rule: LOOK_BEFORE_LOCK two all bytes are seen free under the session lock, exclusive
 * Rule: HEADER_FIRST two closed is marked first, only then the header is touched
 * Rule: CHILD_WITHOUT_SLOT child a forked child takes a slot of its own before its first lock
 * Rule: NO_POOL_LOCK child gate and daemon keep each other out by the pool's lock
 */
#define FILES 4
#define NONE  0
#define OPEN  1
#define CLOSED 2

byte state[FILES + 1], incarnation[FILES + 1];
byte held[FILES + 1]; /* locked slot bytes */
byte shared[FILES + 1];
bool exclusive[FILES + 1];
byte files; /* control files made so far */
byte path; /* control/LANE */
byte lane_incarnation = 1;
bool alone; /* somebody changes the lane in the belief that no session is there */
bool pool_lock, daemon_up;
byte attached; /* the daemon's control file */
bool kill_daemon;
byte children;

/* Open and mapped: n. Either by the daemon or by the path; 0: neither */
inline find_file()
{
	if
	:: atomic { daemon_up && attached != 0 -> n = attached }
	:: atomic {
		!daemon_up && path != 0 && state[path] == OPEN && held[path] > 0 -> n = path
	   }
	:: n = 0
	fi
}

proctype session(byte n)
{
	bool has_byte, has_lock;
	byte tries, before;

	if
	:: n != 0 ->
#ifdef CHILD_WITHOUT_SLOT
		goto attached_to
#else
		goto take
#endif
	:: else
	fi;

again:	if
	:: tries == 2 -> goto dead
	:: else -> tries++
	fi;
	find_file();
	if
	:: n == 0 -> goto again
	:: else
	fi;
	/* map_lane: the header must be of the incarnation that the control file names */
	if
	:: lane_incarnation != incarnation[n] -> goto again
	:: else
	fi;
take:
#ifdef STATE_UNLOCKED
	before = state[n];
#endif
#ifndef NO_SESSION_LOCK
	atomic {
		if
		:: !exclusive[n] -> shared[n]++; has_lock = true
		:: exclusive[n] -> goto again
		:: goto dead
		fi
	}
#endif
	if
	:: atomic { held[n]++; has_byte = true }
	:: goto dead
	fi;
#ifndef STATE_UNLOCKED
	before = state[n];
#endif
	if
	:: goto dead
	:: before != OPEN ->
		atomic { held[n]--; has_byte = false }
		if
		:: atomic { has_lock -> shared[n]--; has_lock = false }
		:: !has_lock
		fi;
		goto again
	:: before == OPEN
	fi;
	if
	:: atomic { has_lock -> shared[n]--; has_lock = false; before = 0; tries = 0 }
	:: !has_lock
	fi;
attached_to:
	do
	:: atomic {
		assert(lane_incarnation == incarnation[n]);
		assert(!alone)
	   }
	   if
	   :: atomic { children < CHILDREN -> children++; run session(n) }
	   :: break
	   fi
	:: break
	od;

	/* the end of a process: all its fcntl locks go at once */
dead:	atomic {
		held[n] = held[n] - has_byte;
		shared[n] = shared[n] - has_lock;
		has_byte = false; has_lock = false; n = 0; tries = 0; before = 0
	}
}

/* From here on nobody attaches. ok: it is ours alone */
inline shut(n)
{
	ok = false;
	if
	:: held[n] == 0 ->
		atomic {
			if
			:: shared[n] == 0 && !exclusive[n] -> exclusive[n] = true; ok = true
			:: else
			fi
		}
		if
		:: ok ->
			locked = n;
#ifndef LOOK_BEFORE_LOCK
			ok = (held[n] == 0);
#endif
#ifdef HEADER_FIRST
			alone = ok;
			lane_incarnation = lane_incarnation + ok;
			alone = false;
#endif
			if
			:: ok -> state[n] = CLOSED
			:: else
			fi;
			atomic { exclusive[n] = false; locked = 0 }
		:: else
		fi
	:: else
	fi
}

/* Recovery, or the last destaging: new incarnation, no control file. */
inline finish()
{
	alone = true;
	lane_incarnation++;
	alone = false;
	path = 0
}

proctype daemon()
{
	byte locked;
	bool ok;
	byte steps;

start:	{
		locked = 0;
#ifndef NO_POOL_LOCK
		atomic { !pool_lock -> pool_lock = true }
#endif
		/* domain_decide */
decide:		if
		:: path != 0 && held[path] > 0 && state[path] != CLOSED -> attached = path
		:: path != 0 && (held[path] == 0 || state[path] == CLOSED) ->
			shut(path);
			if
			:: ok -> finish()
			:: else -> goto decide
			fi
		:: path == 0
		fi;
		daemon_up = true;
		do
		:: steps < 2 && attached == 0 ->
			/* attach_new */
			steps++;
			alone = true;
			lane_incarnation++;
			alone = false;
			d_step {
				files++;
					incarnation[files] = lane_incarnation;
				state[files] = OPEN
			}
			path = files;
			attached = path
		:: attached != 0 ->
			/* sessions_end */
			shut(attached);
			if
			:: ok ->
				alone = true;
				lane_incarnation++;
				alone = false;
				attached = 0;
				path = 0
			:: else
			fi
		:: steps == 2 && attached == 0 -> break
		od
	} unless {
		atomic {
			kill_daemon ->
			kill_daemon = false; daemon_up = false; attached = 0; alone = false;
			if
			:: locked != 0 -> exclusive[locked] = false; locked = 0
			:: else
			fi;
			pool_lock = false; ok = false; steps = 1;
			goto start
		}
	}
}

active proctype killer()
{
	if
	:: kill_daemon = true
	:: skip
	fi
}

#ifndef NO_GATE
/* pmemlogctl gate, when no daemon has the pool */
active proctype gate()
{
	byte locked;
	bool ok;

#ifndef NO_POOL_LOCK
	atomic {
		if
		:: !pool_lock -> pool_lock = true
		:: pool_lock -> goto busy
		fi
	}
#endif
	if
	:: path != 0 ->
		shut(path);
		if
		:: ok -> finish()
		:: else
		fi
	:: else
	fi;
#ifndef NO_POOL_LOCK
	pool_lock = false;
#endif
busy:	skip
}
#endif

init {
	atomic {
		run daemon();
		run session(0);
#if SESSIONS > 1
		run session(0)
#endif
	}
}
