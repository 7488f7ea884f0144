package keys

import (
	"fmt"
	"time"
)

// answerTimeout is how long a file system may take to answer. A handshake may take longer.
const answerTimeout = time.Second

var errSilent = fmt.Errorf("%w: the file system does not answer", ErrKeys)

// patient reads files, and leaves a read behind where the file system does not answer: such a read
// cannot be interrupted. While it lasts there is no other one.
type patient[T any] struct{ free chan struct{} }

func newPatient[T any]() patient[T] {
	p := patient[T]{make(chan struct{}, 1)}
	p.free <- struct{}{}
	return p
}

func (p patient[T]) read(f func() (T, error)) (v T, err error) {
	select {
	case <-p.free:
	default:
		return v, errSilent
	}
	type outcome struct {
		value T
		err   error
	}
	done := make(chan outcome, 1)
	go func() {
		v, err := f()
		p.free <- struct{}{}
		done <- outcome{v, err}
	}()
	timer := time.NewTimer(answerTimeout)
	defer timer.Stop()
	select {
	case o := <-done:
		return o.value, o.err
	case <-timer.C:
		return v, errSilent
	}
}
