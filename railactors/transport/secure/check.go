package secure

import (
	"bytes"
	"crypto/cipher"
	"encoding/binary"
	"errors"
	"hash/crc32"

	"github.com/polyrail/polyrail/railactors/transport"
)

// prefaceBytes is no less than the header of a frame: a node that does not check waits for one, and
// is to see at once whom it deals with.
const prefaceBytes = 128

// preface is what each side of a checked connection begins with.
var preface = append([]byte(transport.CheckedPreface), make([]byte, prefaceBytes-len(transport.CheckedPreface))...)

// agree is the handshake without keys: both sides say that they check. Who dialed says so first, so
// that a node that does not is told before it says anything.
func (c *conn) agree() error {
	if c.dialed {
		if _, err := c.inner.Write(preface); err != nil {
			return err
		}
	}
	got := make([]byte, len(preface))
	name := got[:len(transport.CheckedPreface)]
	if _, err := c.inner.ReadFull(name); err != nil {
		return err
	}
	if string(name) != transport.CheckedPreface {
		c.plain = true
		return transport.ErrUnchecked
	}
	if _, err := c.inner.ReadFull(got[len(name):]); err != nil {
		return err
	}
	if !bytes.Equal(got, preface) {
		return errChanged
	}
	if !c.dialed {
		if _, err := c.inner.Write(preface); err != nil {
			return err
		}
	}
	c.in.seal, c.out.seal = newChecker(), newChecker()
	return nil
}

var errChanged = errors.New("the beginning of the connection was changed on its way")

// newChecker is a sealer without a key.
func newChecker() *sealer { return &sealer{aead: checksum{}, flaw: "did not arrive as it was written"} }

// checksum stands in for a cipher: the text stays what it is, and the tag is a CRC32C of the record's
// number, its header and the text. The rest of the tag is zero.
type checksum struct{}

var (
	_          cipher.AEAD = checksum{}
	castagnoli             = crc32.MakeTable(crc32.Castagnoli)
)

func (checksum) NonceSize() int { return nonceBytes }
func (checksum) Overhead() int  { return tagBytes }

func (checksum) tag(nonce, header, text []byte) (tag [tagBytes]byte) {
	sum := crc32.Update(crc32.Update(crc32.Update(0, castagnoli, nonce), castagnoli, header), castagnoli, text)
	binary.LittleEndian.PutUint32(tag[:], sum)
	return tag
}

func (c checksum) Seal(dst, nonce, text, header []byte) []byte {
	tag := c.tag(nonce, header, text)
	return append(append(dst, text...), tag[:]...)
}

// Open may be given the record's own memory as dst, as a cipher may.
func (c checksum) Open(dst, nonce, record, header []byte) ([]byte, error) {
	n := len(record) - tagBytes
	if n < 0 || [tagBytes]byte(record[n:]) != c.tag(nonce, header, record[:n]) {
		return nil, errChanged
	}
	return append(dst, record[:n]...), nil
}
