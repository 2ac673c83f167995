package main

import "fmt"

// Limit is what a figure has to keep. The zero Limit is none.
type Limit struct {
	sign  string // "≤", "≥" or "="
	value float64
}

func atMost(v float64) Limit  { return Limit{"≤", v} }
func atLeast(v float64) Limit { return Limit{"≥", v} }
func exactly(v float64) Limit { return Limit{"=", v} }

// Set reports whether there is a limit.
func (l Limit) Set() bool { return l.sign != "" }

// Keeps reports whether v keeps it.
func (l Limit) Keeps(v float64) bool {
	switch l.sign {
	case "≤":
		return v <= l.value
	case "≥":
		return v >= l.value
	case "=":
		return v == l.value
	}
	return true
}

// with writes it down in the unit.
func (l Limit) with(unit string) string {
	if !l.Set() {
		return "–"
	}
	return fmt.Sprintf("%s %s", l.sign, number(l.value, unit))
}
