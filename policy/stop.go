package policy

import (
	"fmt"
	"time"
)

// Stop is how long a broker that was asked to end may take, and for what.
type Stop struct {
	Delay time.Duration // not ready, and operations are taken all the same: a load balancer turns away
	Drain time.Duration // what has begun may end by itself; what is left is cut
	Grace time.Duration // then whoever asked kills; Delay, Drain and CleanUp end before that
}

// CleanUp bounds what follows the drain: outcomes, holds, answers, the last
// record, epochs. What is not done by then is left to the next process and to
// Vault.
const CleanUp = 9500 * time.Millisecond

const (
	defaultDrain = 20 * time.Second
	defaultGrace = 30 * time.Second // what Kubernetes gives, and deploy/ says
	mostDelay    = 5 * time.Minute
	mostGrace    = time.Hour
)

// readStop refuses times that do not fit into one another: a broker that is
// killed before its clean-up has ended leaves holds and open operations.
func readStop(s *section) Stop {
	if s == nil {
		return Stop{Drain: defaultDrain, Grace: defaultGrace}
	}
	defer s.end()
	problems := len(s.l.problems)
	st := Stop{
		Delay: s.duration("delay", 0, mostDelay),
		Drain: s.durationOr("drain", defaultDrain, 0, mostTimeout),
		Grace: s.durationOr("grace_period", defaultGrace, CleanUp, mostGrace),
	}
	need := st.Delay + st.Drain + CleanUp
	if len(s.l.problems) == problems && need >= st.Grace {
		s.report("grace_period", fmt.Sprintf("%v must be more than delay %v + drain %v + %v for the clean-up = %v", st.Grace, st.Delay, st.Drain, CleanUp, need))
	}
	return st
}
