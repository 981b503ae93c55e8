package frames

import (
	"errors"

	"golang.org/x/net/http2/hpack"
)

// A move is what four bits of a string in Huffman's code do after those before them. No
// symbol has fewer than five bits, so they end one at most.
type move struct {
	next   uint8 // node
	symbol byte
	ends   bool // symbol
	wrong  bool // no symbol begins so
}

// huffman are the moves from each node of the code's tree, of which 0 is the root. padding
// are the nodes that a string may end at: those of up to seven bits, all of them 1.
var huffman, padding = func() (moves [256][16]move, padding [256]bool) {
	// The tree, made of the codes that package hpack writes. A leaf is its symbol below 0.
	tree, size := [256][2]int{}, 1
	for symbol := range 256 {
		eight := string([]byte{byte(symbol), byte(symbol), byte(symbol), byte(symbol), byte(symbol), byte(symbol), byte(symbol), byte(symbol)})
		length := int(hpack.HuffmanEncodeLength(eight)) // of one, in bits
		code := hpack.AppendHuffmanString(nil, eight)
		node := 0
		for i := range length - 1 {
			next := &tree[node][code[i/8]>>(7-i%8)&1]
			if *next == 0 {
				*next = size
				size++
			}
			node = *next
		}
		i := length - 1
		tree[node][code[i/8]>>(7-i%8)&1] = -1 - symbol
	}
	for from := range moves {
		for bits := range moves[from] {
			m, node := move{}, from
			for i := 3; i >= 0; i-- {
				node = tree[node][bits>>i&1]
				if node < 0 {
					m.symbol, m.ends, node = byte(-1-node), true, 0
				} else if node == 0 {
					m.wrong = true
					break
				}
			}
			m.next = uint8(node)
			moves[from][bits] = m
		}
	}
	for node, depth := 0, 0; depth < 8; depth++ {
		padding[node] = true
		node = tree[node][1]
	}
	return moves, padding
}()

var errHuffman = errors.New("frames: a string that is not in Huffman's code")

// unhuffman returns a string that is in Huffman's code.
func unhuffman(b []byte) (string, error) {
	var memory [128]byte
	text, node, wrong := memory[:0], uint8(0), false
	for _, next := range b {
		m := &huffman[node][next>>4]
		if wrong = wrong || m.wrong; m.ends {
			text = append(text, m.symbol)
		}
		m = &huffman[m.next][next&15]
		if wrong = wrong || m.wrong; m.ends {
			text = append(text, m.symbol)
		}
		node = m.next
	}
	if wrong || !padding[node] {
		return "", errHuffman
	}
	return string(text), nil
}
