package storetest

// holderCases, idCases, backCases and changeCases are filled in their files.
var holderCases, idCases, backCases, changeCases []testCase
