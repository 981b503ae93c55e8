package rlqs

import (
	"errors"
	"math"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/weirlimit/weir/server/internal/rules"
)

// MaxMessageBytes is the size of the largest message of a stream. Envoy reports all of its buckets
// in one message, and it may have many before it is told to abandon them.
const MaxMessageBytes = 4 << 20

var errMessage = errors.New("the message is no RateLimitQuotaUsageReports")

// A usage is a report of one bucket.
type usage struct {
	id              []rules.Entry // by key
	allowed, denied int64
}

// decode calls each with the usages of a message, in order, and returns its domain. Clients choose
// the values of ids, so texts may have any bytes: a decoder of protobuf would refuse the message
// for those that are no UTF-8, and with it the reports of all other buckets.
func decode(message []byte, each func(*usage) error) (domain string, err error) {
	err = fields(message, func(tag uint64, text []byte, _ uint64) error {
		switch tag {
		case text1:
			domain = string(text)
		case text2:
			u, err := decodeUsage(text)
			if err != nil {
				return err
			}
			return each(u)
		}
		return nil
	})
	return domain, err
}

func decodeUsage(text []byte) (*usage, error) {
	u := new(usage)
	err := fields(text, func(tag uint64, text []byte, number uint64) error {
		switch tag {
		case text1:
			return fields(text, func(tag uint64, text []byte, _ uint64) error {
				if tag != text1 {
					return nil
				}
				var e rules.Entry
				err := fields(text, func(tag uint64, text []byte, _ uint64) error {
					switch tag {
					case text1:
						e.Key = string(text)
					case text2:
						e.Value = string(text)
					}
					return nil
				})
				u.id = append(u.id, e)
				return err
			})
		case number3:
			u.allowed = count(number)
		case number4:
			u.denied = count(number)
		}
		return nil
	})
	// Of several values of one key the last one counts.
	slices.Reverse(u.id)
	slices.SortStableFunc(u.id, func(a, b rules.Entry) int { return strings.Compare(a.Key, b.Key) })
	u.id = slices.CompactFunc(u.id, func(a, b rules.Entry) bool { return a.Key == b.Key })
	return u, err
}

// count returns a number of requests, which no Envoy reports as larger.
func count(n uint64) int64 { return int64(min(n, math.MaxUint32)) }

// The tags of fields, by their type and number.
var (
	text1   = protowire.EncodeTag(1, protowire.BytesType)
	text2   = protowire.EncodeTag(2, protowire.BytesType)
	number3 = protowire.EncodeTag(3, protowire.VarintType)
	number4 = protowire.EncodeTag(4, protowire.VarintType)
)

// fields calls each with the tag of each field of a message, and its bytes or its number.
func fields(message []byte, each func(tag uint64, text []byte, number uint64) error) error {
	for len(message) > 0 {
		n, kind, size := protowire.ConsumeTag(message)
		if size < 0 {
			return errMessage
		}
		message = message[size:]
		var text []byte
		var number uint64
		switch kind {
		case protowire.BytesType:
			text, size = protowire.ConsumeBytes(message)
		case protowire.VarintType:
			number, size = protowire.ConsumeVarint(message)
		default:
			size = protowire.ConsumeFieldValue(n, kind, message)
		}
		if size < 0 {
			return errMessage
		}
		if err := each(protowire.EncodeTag(n, kind), text, number); err != nil {
			return err
		}
		message = message[size:]
	}
	return nil
}
