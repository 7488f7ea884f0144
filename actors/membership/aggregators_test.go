package membership

import (
	"fmt"
	"testing"

	"github.com/polyrail/polyrail/messages"
)

// Hundreds of nodes answer at once. Who asks keeps each answer, however late it looks at them, and
// none of a node that it has not asked.
func TestAnswersOfAllNodesAreKept(t *testing.T) {
	const nodes, id = 1000, 7
	var q queries
	asked := &query{awaited: map[string]bool{}, answers: map[string]*messages.TreeReport{},
		complete: make(chan struct{}, 1)}
	for i := range nodes {
		asked.awaited[fmt.Sprint(i)] = true
	}
	q.ask(id, asked)
	q.answered("stranger", &messages.TreeReport{Id: id})
	for i := range nodes {
		q.answered(fmt.Sprint(i), &messages.TreeReport{Id: id})
	}
	<-asked.complete
	q.end(id)
	q.answered("0", &messages.TreeReport{Id: id, Rails: []string{"late"}})
	if len(asked.answers) != nodes || len(asked.answers["0"].GetRails()) != 0 {
		t.Errorf("%d answers are kept, the first is %v", len(asked.answers), asked.answers["0"])
	}
}
