package secure

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"math"
)

const (
	secretBytes = 32 // of a direction, exported from TLS
	keyBytes    = 16 // AES-128
	nonceBytes  = 12
	tagBytes    = 16
	// rekeyRecords is after how many records a direction takes its next key. One of AES-GCM is good for
	// 2^24.5 full records of 16 KiB (RFC 8446, 5.5), which are 2^22.5 of 64 KiB.
	rekeyRecords = 1 << 22
	// lastRecord ends a connection, so that no number, and so no nonce, is used twice.
	lastRecord = math.MaxUint64
)

var errExhausted = errors.New("the connection has used up its record numbers")

// sealer has the key of one direction of a connection. Records can neither be repeated nor left out
// nor change places: the number of each is its nonce.
type sealer struct {
	aead   cipher.AEAD
	flaw   string // what is to be said of a record that does not open
	secret []byte // of the key in use; none without keys
	base   [nonceBytes]byte
	number uint64 // of the next record
	nonce  [nonceBytes]byte
}

func newSealer(secret []byte) (*sealer, error) {
	s := &sealer{flaw: "is not authentic"}
	return s, s.use(secret)
}

// use takes a key and a nonce's base from a secret.
func (s *sealer) use(secret []byte) error {
	b, err := hkdf.Expand(sha256.New, secret, "polyrail record", keyBytes+nonceBytes)
	if err != nil {
		return err
	}
	block, err := aes.NewCipher(b[:keyBytes])
	if err != nil {
		return err
	}
	s.secret, s.base = secret, [nonceBytes]byte(b[keyBytes:])
	s.aead, err = cipher.NewGCM(block)
	return err
}

// next is the nonce of the next record. It is valid until the next call.
func (s *sealer) next() ([]byte, error) {
	switch {
	case s.number == lastRecord:
		return nil, errExhausted
	case s.number > 0 && s.number%rekeyRecords == 0 && s.secret != nil:
		secret, err := hkdf.Expand(sha256.New, s.secret, "polyrail next", secretBytes)
		if err == nil {
			err = s.use(secret)
		}
		if err != nil {
			return nil, err
		}
	}
	s.nonce = s.base
	tail := s.nonce[nonceBytes-8:]
	binary.LittleEndian.PutUint64(tail, binary.LittleEndian.Uint64(tail)^s.number)
	s.number++
	return s.nonce[:], nil
}
