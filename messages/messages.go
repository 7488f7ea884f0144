// Package messages holds what nodes say to each other outside the data path: protobuf
// messages for the pairs (control.proto) and for rendezvous over gossip (cluster.proto).
//
// Each message's comment says who sends it and what answers it. The binary frames
// of the data path are in messages/wire.
package messages

//go:generate sh -c "protoc --plugin=protoc-gen-go=$(go tool -n protoc-gen-go) --go_out=. --go_opt=paths=source_relative control.proto cluster.proto"
