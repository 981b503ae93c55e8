package main

import (
	"context"
	"iter"
	"strings"
	"time"
)

// A chunk is a piece of an answer, and what it costs.
type chunk struct {
	text   string
	tokens int64
}

// A model answers a prompt piece by piece. An error ends the answer.
type model func(ctx context.Context, prompt string) iter.Seq2[chunk, error]

// tokensOf counts the tokens of a text: one for each four bytes begun of a word.
func tokensOf(text string) int64 {
	n := int64(0)
	for word := range strings.FieldsSeq(text) {
		n += int64(len(word)+3) / 4
	}
	return n
}

const story = "Once upon a time a river came down from the mountains in such a hurry that nobody below could drink " +
	"from it, so the people built a weir, and since then it has given each of the mills its share."

// writeStory is a model that knows one story.
func writeStory(ctx context.Context, _ string) iter.Seq2[chunk, error] {
	return func(yield func(chunk, error) bool) {
		for word := range strings.FieldsSeq(story) {
			select {
			case <-ctx.Done():
				yield(chunk{}, ctx.Err())
				return
			case <-time.After(20 * time.Millisecond):
			}
			if !yield(chunk{word, tokensOf(word)}, nil) {
				return
			}
		}
	}
}
