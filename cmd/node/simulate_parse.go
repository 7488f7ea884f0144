package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/polyrail/polyrail/cmd/node/internal/simulate"
)

// This file reads and writes what a simulated cluster is made of.

func parseSimLink(s string) (l simulate.Link, err error) {
	startup, rate, ok := strings.Cut(s, ":")
	if !ok {
		return l, fmt.Errorf("%q is not STARTUP:RATE, like 5us:100Gbit", s)
	}
	if l.Startup, err = time.ParseDuration(startup); err == nil && l.Startup < 0 {
		err = fmt.Errorf("%q is negative", startup)
	}
	if err == nil {
		l.Rate, err = parseRateBytes(rate)
	}
	return l, err
}

func formatSimLink(l simulate.Link) string { return l.Startup.String() + ":" + formatRateBytes(l.Rate) }

func parseSimRail(s string) (simulate.Rail, error) {
	burst := time.Duration(0)
	if strings.Count(s, ":") == 2 {
		at := strings.LastIndexByte(s, ':')
		var err error
		if burst, err = time.ParseDuration(s[at+1:]); err != nil || burst < 0 {
			return simulate.Rail{}, fmt.Errorf("%q is not STARTUP:RATE:BURST, like 50us:250Mbit:300us", s)
		}
		s = s[:at]
	}
	l, err := parseSimLink(s)
	l.Burst = burst
	return simulate.Rail{Link: l}, err
}

func formatSimRail(r simulate.Rail) string {
	s := formatSimLink(r.Link)
	if r.Burst > 0 {
		s += ":" + r.Burst.String()
	}
	return s
}

// rateUnits are bits per second.
var rateUnits = []struct {
	name string
	bits float64
}{{"Tbit", 1e12}, {"Gbit", 1e9}, {"Mbit", 1e6}}

// parseRateBytes reads a rate in bits as bytes per second.
func parseRateBytes(s string) (float64, error) {
	for _, u := range rateUnits {
		if number, ok := strings.CutSuffix(s, u.name); ok {
			if x, err := strconv.ParseFloat(number, 64); err == nil && x > 0 && x*u.bits <= 1e15 {
				return x * u.bits / 8, nil
			}
		}
	}
	return 0, fmt.Errorf("%q is not a rate, like 250Mbit or 100Gbit", s)
}

func formatRateBytes(rate float64) string {
	for _, u := range rateUnits {
		if bits := rate * 8; bits >= u.bits {
			return strconv.FormatFloat(bits/u.bits, 'g', 4, 64) + u.name
		}
	}
	return strconv.FormatFloat(rate*8/1e6, 'g', 4, 64) + "Mbit"
}

func parseTreeKind(s string) (string, error) {
	switch s {
	case "none", "switch", "host":
		return s, nil
	}
	return "", fmt.Errorf("%q is not none, switch or host", s)
}

func parseFault(s string) (f simulate.Fault, err error) {
	rail, at, ok := strings.Cut(s, "@")
	if f.Rail, err = strconv.Atoi(rail); !ok || err != nil {
		return f, fmt.Errorf("%q is not RAIL@TIME, like 1@20ms", s)
	}
	f.At, err = time.ParseDuration(at)
	return f, err
}

func formatFault(f simulate.Fault) string { return fmt.Sprintf("%d@%v", f.Rail, f.At) }
