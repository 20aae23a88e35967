package subject

var Ended = ended
