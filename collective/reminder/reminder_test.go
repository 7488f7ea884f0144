package reminder

import (
	"fmt"
	"testing"
	"time"
)

func TestFewThingsAreTold(t *testing.T) {
	var n Reminders
	now := time.Now()
	told := 0
	for i := range 10 * most {
		for range 2 {
			if n.Due(fmt.Sprint("host", i), now) {
				told++
			}
		}
	}
	if told != most || len(n.told) != most {
		t.Errorf("%d are told, %d remembered", told, len(n.told))
	}
	if later := now.Add(Every); !n.Due("host0", later) || n.Due("host0", later) || len(n.told) != 1 {
		t.Errorf("after %v it is not told once: %v", Every, n.told)
	}
}

func TestWhatWasOverIsToldAtOnce(t *testing.T) {
	var n Reminders
	now := time.Now()
	if !n.Due("rail down", now) || n.Due("rail down", now) {
		t.Fatal("it is not told once")
	}
	n.Forget()
	if !n.Due("rail down", now) {
		t.Error("it is not told again")
	}
}
