package process

var Undumpable = undumpable
