// Before anything is drawn: the theme that was chosen, if it is not the system's.
(() => {
  let theme = null;
  try {
    theme = localStorage.getItem('kin.theme');
  } catch {} // no storage: the system's
  if (theme === 'light' || theme === 'dark') document.documentElement.dataset.theme = theme;
})();
