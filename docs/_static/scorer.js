/* Search: pages for readers come before generated pages of the API, the gallery and decisions. */
var Scorer = {
  score: ([name, , , , score]) => {
    if (/^(tutorials|howto|explanation)\//.test(name)) return score + 9;
    if (!name.includes("/")) return score + 8;
    if (/^reference\/\w+$/.test(name)) return score + 2;
    return /^(adr|gallery)\//.test(name) ? score - 6 : score;
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 4, 1: 0, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
