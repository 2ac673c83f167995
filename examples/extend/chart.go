package main

import (
	"fmt"
	"strings"
	"time"
)

// The span that all drawings share.
const (
	span    = 10400 * time.Millisecond
	highest = rows * perRow
)

const (
	columns = 72
	rows    = 4
	perRow  = 2 * time.Second
)

var eighths = []rune(" ▁▂▃▄▅▆▇█")

// chart draws what is left of the lease, a row for two seconds, in 80 columns. A part
// that a dead process left behind is drawn in dots.
func (r *record) chart() []string {
	var lines []string
	for row := rows - 1; row >= 0; row-- {
		line := fmt.Sprintf("%3.0f s ", (time.Duration(row+1) * perRow).Seconds())
		for col := range columns {
			at := columnTime(col)
			if at > r.end() {
				break
			}
			left, alive := r.left(at)
			// Eighths of this row that are filled.
			fill := max(0, min(8, int(8*(left-time.Duration(row)*perRow)/perRow)))
			switch {
			case alive:
				line += string(eighths[fill])
			case fill > 3:
				line += ":"
			case fill > 0:
				line += "."
			default:
				line += " "
			}
		}
		lines = append(lines, strings.TrimRight(line, " "))
	}
	return append(lines, strings.TrimRight("      "+r.marks(), " "))
}

// marks is the line below the chart: the steps, the outage and the kill.
func (r *record) marks() string {
	marks := []rune(strings.Repeat(" ", columns))
	for col := range marks {
		at := columnTime(col)
		if r.awayAt > 0 && at >= r.awayAt && at < r.awayAt+awayFor && at <= r.end() {
			marks[col] = '~'
		}
	}
	write := func(at time.Duration, text string) {
		copy(marks[min(columns-1, timeColumn(at)):], []rune(text))
	}
	for i, start := range r.steps {
		write(start.Sub(r.start), fmt.Sprintf("step %d", i+1))
	}
	switch {
	case r.killed:
		write(r.killAt, "killed")
		write(r.heirAt, "free")
	case r.lostAt > 0:
		write(r.lostAt, "lost")
		write(r.awayAt, "~away~")
	default:
		write(r.awayAt, "~away~")
	}
	return string(marks)
}

// end is until when there is something to draw.
func (r *record) end() time.Duration {
	switch {
	case r.killed:
		return r.heirAt
	case len(r.samples) == 0:
		return 0
	default:
		return r.samples[len(r.samples)-1].At.Sub(r.start)
	}
}

func columnTime(col int) time.Duration { return span * time.Duration(col) / columns }

func timeColumn(at time.Duration) int { return int(at * columns / span) }
