// Applies the chosen theme, if it is not the system's, before anything is drawn.
(() => {
  let theme = null;
  try {
    theme = localStorage.getItem('kin.theme');
  } catch {} // no storage: use the system's
  if (theme === 'light' || theme === 'dark') document.documentElement.dataset.theme = theme;
})();
