package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/cmd/internal/settings"
)

// screen writes a cluster for a terminal, with rates since another frame.
func screen(w io.Writer, now, before *polyrail.ClusterStatus) error {
	self := &now.Self
	seconds := self.Time.Sub(before.Self.Time).Seconds()
	state := "ready"
	if len(self.Obstacles) > 0 {
		state = "not ready: " + printable(strings.Join(self.Obstacles, "; "))
	}
	_, err := fmt.Fprintf(w, "node %s of %s, up %v, %s; memory %s of %s\n\n", printable(self.Node), printable(self.Cluster),
		self.Time.Sub(self.Started).Round(time.Second), state,
		settings.FormatSize(int(self.Memory.InUse)), settings.FormatSize(int(self.Memory.Limit)))
	return errors.Join(err, inColumns(w, func(out io.Writer) { railLines(out, now, before, seconds) }),
		inColumns(w, func(out io.Writer) { nodeLines(out, now, before, seconds) }),
		inColumns(w, func(out io.Writer) { operationLines(out, now, before, seconds) }),
		inColumns(w, func(out io.Writer) { communicatorLines(out, self) }),
		eventLines(w, now))
}

// perSecond writes the rate of a counter of bytes.
func perSecond(now, before uint64, seconds float64) string {
	if now < before || seconds <= 0 {
		return "-"
	}
	return fmt.Sprintf("%.4g MB/s", float64(now-before)/seconds/1e6)
}

func upDown(up bool) string {
	if up {
		return "up"
	}
	return "DOWN"
}

func railLines(out io.Writer, now, before *polyrail.ClusterStatus, seconds float64) {
	fmt.Fprintln(out, "RAIL\tSTATE\tSENT\tRECEIVED\tPEERS\tWHILE BUSY\tIN FLIGHT\tSENT AGAIN\tDEVICE")
	for i := range now.Self.Rails {
		r := &now.Self.Rails[i]
		var old polyrail.RailStatus
		if i < len(before.Self.Rails) {
			old = before.Self.Rails[i]
		}
		up, all, flying, rate, rated := 0, 0, 0, 0.0, 0
		for _, p := range now.Self.Pairs {
			if p.Rail != r.Name {
				continue
			}
			if all++; p.Up {
				up++
			}
			if flying += p.InFlight; p.Rate > 0 {
				rate, rated = rate+p.Rate, rated+1
			}
		}
		busy := "-"
		if rated > 0 {
			busy = fmt.Sprintf("%.4g MB/s", rate/float64(rated)/1e6)
		}
		fmt.Fprintf(out, "%s\t%s\t%s\t%s\t%d of %d\t%s\t%s\t%d\t%s\n", printable(r.Name), upDown(r.Up),
			perSecond(r.BytesSent, old.BytesSent, seconds), perSecond(r.BytesReceived, old.BytesReceived, seconds),
			up, all, busy, settings.FormatSize(flying), r.Resent, printable(r.Chosen))
	}
	fmt.Fprintln(out)
}

// silentAfter is when a node that does not answer is shown as silent, in seconds.
const silentAfter = 4

func nodeLines(out io.Writer, now, before *polyrail.ClusterStatus, seconds float64) {
	if len(now.Others) == 0 {
		return
	}
	old := make(map[string]uint64)
	for _, n := range before.Others {
		for _, r := range n.Rails {
			old[n.Node+"\x00"+r.Name] = r.BytesSent
		}
	}
	fmt.Fprintln(out, "OTHER NODE\tSTATE\tRAILS\tSENT")
	for _, n := range now.Others {
		state, rails, sent := "well", []string{}, []string{}
		switch {
		case n.Silent < 0:
			state = "no answer yet"
		case n.Silent > silentAfter:
			state = fmt.Sprintf("SILENT for %.0f s", n.Silent)
		case len(n.Obstacles) > 0:
			state = printable(n.Obstacles[0])
		}
		for _, c := range n.Communicators {
			if c.Err != "" {
				state = printable(c.Name) + " is BROKEN"
			}
		}
		for _, r := range n.Rails {
			rails = append(rails, printable(r.Name)+" "+upDown(r.Up))
			sent = append(sent, perSecond(r.BytesSent, old[n.Node+"\x00"+r.Name], seconds))
		}
		fmt.Fprintf(out, "%s\t%s\t%s\t%s\n", printable(n.Node), state, strings.Join(rails, ", "), strings.Join(sent, ", "))
	}
	fmt.Fprintln(out)
}

func operationLines(out io.Writer, now, before *polyrail.ClusterStatus, seconds float64) {
	type count struct{ count, bytes uint64 }
	old := make(map[string]count)
	key := func(name, kind string, size int) string { return fmt.Sprintf("%s\x00%s\x00%d", name, kind, size) }
	for _, c := range before.Self.Counts {
		for _, k := range c.Counts {
			old[key(c.Name, k.Kind, k.MaxBytes)] = count{k.Took.Count, k.Bytes}
		}
	}
	lines := 0
	for _, c := range now.Self.Counts {
		for _, k := range c.Counts {
			if lines++; lines == 1 {
				fmt.Fprintln(out, "COMMUNICATOR\tOPERATION\tUP TO\tPER SECOND\tBYTES\tMEAN OF ALL\tFAILED")
			}
			was := old[key(c.Name, k.Kind, k.MaxBytes)]
			size := "any size"
			if k.MaxBytes >= 0 {
				size = settings.FormatSize(k.MaxBytes)
			}
			mean := time.Duration(0)
			if k.Took.Count > 0 {
				mean = k.Took.Sum / time.Duration(k.Took.Count)
			}
			fmt.Fprintf(out, "%s\t%s\t%s\t%.4g\t%s\t%v\t%d\n", printable(c.Name), k.Kind, size,
				float64(k.Took.Count-was.count)/seconds, perSecond(k.Bytes, was.bytes, seconds), rounded(mean), k.Failed)
		}
	}
	if lines > 0 {
		fmt.Fprintln(out)
	}
}

func communicatorLines(out io.Writer, self *polyrail.NodeStatus) {
	if len(self.Communicators) == 0 {
		return
	}
	fmt.Fprintln(out, "COMMUNICATOR\tRANK\tOF\tOPERATIONS\tIN FLIGHT\tTABLE\tLARGEST SHARES\tSTATE")
	for i := range self.Communicators {
		c := &self.Communicators[i]
		state, shares := "well", "-"
		switch {
		case c.Err != "":
			state = "BROKEN: " + printable(c.Err)
		case c.Degraded:
			state = "a rail is down"
		}
		for k := range c.Classes {
			if c.Classes[k].Family == "allreduce" {
				shares = percents(c.Classes[k].Shares)
			}
		}
		fmt.Fprintf(out, "%s\t%d\t%d\t%d\t%d\t%d\t%s\t%s\n", printable(c.Name), c.Rank, c.Size, c.Seq, c.InFlight, c.Version, shares, state)
	}
	fmt.Fprintln(out)
}

// shownEvents are the last ones that are listed.
const shownEvents = 8

func eventLines(w io.Writer, now *polyrail.ClusterStatus) error {
	type line struct {
		at   time.Time
		text string
	}
	var all []line
	add := func(node string, events []polyrail.EventRecord) {
		for _, e := range events {
			words := []string{e.Kind, e.Communicator, e.Rail}
			if e.Node != "" {
				words = append(words, "to "+e.Node)
			}
			if e.Err != "" {
				words = append(words, "("+e.Err+")")
			}
			text := strings.Join(slices.DeleteFunc(words, func(s string) bool { return s == "" }), " ")
			all = append(all, line{e.Time, fmt.Sprintf("%s  %s: %s", e.Time.Local().Format(time.TimeOnly), printable(node), printable(text))})
		}
	}
	add(now.Self.Node, now.Self.Events)
	for _, n := range now.Others {
		add(n.Node, n.Events)
	}
	slices.SortStableFunc(all, func(a, b line) int { return cmp.Compare(a.at.UnixNano(), b.at.UnixNano()) })
	for _, l := range all[max(0, len(all)-shownEvents):] {
		if _, err := fmt.Fprintln(w, l.text); err != nil {
			return err
		}
	}
	return nil
}

// printable makes texts of nodes fit for a terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}
