package main

import "fmt"

// A target is a number to reach, and what was reached.
type target struct {
	What    string  `json:"what"`
	Limit   float64 `json:"limit"`
	Reached float64 `json:"reached"`
	AtLeast bool    `json:"at_least,omitempty"` // else at most
}

func (t target) met() bool {
	if t.AtLeast {
		return t.Reached >= t.Limit
	}
	return t.Reached <= t.Limit
}

func (t target) String() string {
	word, sign := "missed", "≤"
	if t.met() {
		word = "met"
	}
	if t.AtLeast {
		sign = "≥"
	}
	return fmt.Sprintf("target %-6s  %-40s %.2f, wanted %s %.2f", word, t.What, t.Reached, sign, t.Limit)
}

// targets are the numbers of the design, for what was measured.
func targets(r *report) (list []target) {
	for _, c := range r.Cases {
		switch c.load {
		case load{"modern", 1}:
			list = append(list, target{"modern, 1 caller: p50 over the floor", 1.35, c.LatencyRatio, false})
		case load{"legacy", 1}:
			list = append(list, target{"legacy, 1 caller: p50 over the floor", 1.25, c.LatencyRatio, false})
		case load{"modern", 64}:
			list = append(list, target{"modern, 64 callers: throughput", 0.80, c.RateRatio, true}, target{"modern, 64 callers: own CPU, ms", 0.52, c.CPU, false})
		case load{"legacy", 64}:
			list = append(list, target{"legacy, 64 callers: throughput", 0.85, c.RateRatio, true}, target{"legacy, 64 callers: own CPU, ms", 0.70, c.CPU, false})
		}
	}
	return append(list,
		target{"a black hole, 2 s operation, ms", holeLimit, r.Hole, false},
		target{"memory idle, MB", 40, r.Idle, false},
		target{"memory with 1,000 operations, MB", 120, r.Thousand, false},
		target{"start to ready, Vault's answer included, ms", 100, r.Start, false},
		target{"binary, MB", 40, r.Binary, false})
}
