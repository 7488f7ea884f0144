package membership

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/polyrail/polyrail/messages"
)

// A node keeps answers of those that it has asked. A few bytes of one can stand for much memory: it
// is kept if it is as short in full.
func TestAnswersThatOnlookersKeepAreLimited(t *testing.T) {
	n := &node{}
	n.onlookers.id, n.onlookers.awaited = 5, map[string]bool{"b": true}
	answer := func(from string, text []byte) (kept bool) {
		n.reported(from, 1, &messages.StatusReport{Id: 5, Status: text})
		_, kept = n.onlookers.seen[from]
		return kept
	}
	for _, list := range []string{"Communicators", "Rails", "Events", "Failovers", "Counts", "Pairs", "Members"} {
		elements := strings.Repeat("{},", maxReportBytes/4) + "{}"
		if answer("b", []byte(`{"`+list+`":[`+elements+`]}`)) {
			t.Errorf("%d empty %s were kept", maxReportBytes/4, list)
		}
	}
	s := Status{Communicators: make([]CommunicatorStatus, maxBriefCommunicators), Events: make([]EventRecord, maxBriefEvents)}
	text, err := json.Marshal(&s)
	if err != nil {
		t.Fatal(err)
	}
	if answer("stranger", text) {
		t.Error("the answer of a node that was not asked was kept")
	}
	if !answer("b", text) {
		t.Errorf("an answer of %d bytes was not kept", len(text))
	}
}
